"""What `pliant bench watch` needs of cascade."""
