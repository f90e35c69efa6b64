"""C++ ops for the CPU, compiled on the machine that runs them."""
