"""What a job is, the pure rules that move it, and the statements that claim, settle and steer it."""
