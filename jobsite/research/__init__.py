"""Research for a document: what is asked, the chain from evidence to an answer, and what people see of it (E9)."""
