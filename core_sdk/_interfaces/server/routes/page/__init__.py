"""Routes that only the page needs: its preferences, and notes as elements to draw."""
