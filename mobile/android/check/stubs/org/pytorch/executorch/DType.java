package org.pytorch.executorch;

public enum DType { UINT8, INT8, INT16, INT32, INT64, HALF, FLOAT, DOUBLE }
