"""MNN models, in fp32, fp16 and INT8."""
