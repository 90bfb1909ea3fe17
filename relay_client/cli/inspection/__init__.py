"""Commands that ask the job what ranks are doing and what values they have, and how commands perform verbs."""
