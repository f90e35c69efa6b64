"""Answers on their way: started, looked up again, ended; the threads that they take and what is told of them."""
