"""Evidence of sites that share no rows."""
