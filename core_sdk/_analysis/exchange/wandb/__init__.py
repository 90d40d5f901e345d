"""The folders of wandb's runs, which are read without wandb."""
