"""What a policy would change, in words and numbers, on a page."""
