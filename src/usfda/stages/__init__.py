"""The stages, at the vendor and at the client: only here do data, features and methods meet."""
