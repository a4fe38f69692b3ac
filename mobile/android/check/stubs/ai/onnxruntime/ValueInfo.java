package ai.onnxruntime;

public interface ValueInfo {}
