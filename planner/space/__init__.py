"""What is legal: degrees, choices, rules."""
