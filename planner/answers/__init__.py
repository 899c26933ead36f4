"""Answers: what is said of a request or a plan, and the searches that each answer takes."""
