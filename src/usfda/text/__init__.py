"""Every sentence that a user reads: numbers and enums in, text out. Nothing else writes prose."""
