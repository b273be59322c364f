"""What `zeus.metric` is made of."""
