package org.pytorch;

public enum DType { UINT8, INT8, INT32, FLOAT32, INT64, FLOAT64 }
