"""What the page needs for itself: its preferences, and notes as elements to draw."""
