"""Reading and editing JSONC, the language of VS Code's files, without losing what users wrote in them."""
