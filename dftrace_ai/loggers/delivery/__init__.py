"""How records reach trackers without any of them being able to hurt the training."""
