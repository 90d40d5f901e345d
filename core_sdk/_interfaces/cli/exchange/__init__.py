"""Commands that take records from other tools, and give ours to them."""
