"""Text, tables and ranges as people read and write them."""
