"""What is measured, and the brokers it is measured on."""
