import os
import sys

# The tests share kernels in a module of their own.
sys.path.insert(0, os.path.dirname(__file__))
