"""DeepSpeed's options, and what they mean on these hosts."""
