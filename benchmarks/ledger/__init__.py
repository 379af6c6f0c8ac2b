"""The ledger of promises: one headline figure of each system and of each capability, with the one that landed last."""
