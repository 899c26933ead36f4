"""What commands print for a person: tables and bars made with rich."""
