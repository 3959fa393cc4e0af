"""Steps of learning: optimizers, their wrappers and schedules."""
