"""Makes charts, reports and evidence of records, reads tensors of checkpoints, and imports other tools' records."""
