"""Measures watching and trials in virtual time: false alarms in quiet months, and how soon challengers are taken back."""
