"""What the model itself says: what is asked, what it answered, and on which device."""
