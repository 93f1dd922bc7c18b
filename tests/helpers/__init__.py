"""What several tests share: instances, models to compare with, files, commands, and readers of pages."""
