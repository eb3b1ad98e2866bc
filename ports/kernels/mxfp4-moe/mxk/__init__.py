"""What the MXFP4 mixture-of-experts kernels for Gaudi 2 rest on: shapes, the order of the weights, and the arithmetic."""
