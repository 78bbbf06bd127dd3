"""Other tools on the rows that mlaplan is scored on: groups of rows, and what each tool says of them."""
