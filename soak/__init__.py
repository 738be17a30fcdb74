"""The fault campaign: the commands are killed, starved and disturbed, and must end as an undisturbed run does."""
