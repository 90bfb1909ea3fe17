"""Commands that show what ranks are doing and what values they have, without stopping them."""
