"""What every resource stands on: who asks and may, what is asked for, how it is answered."""
