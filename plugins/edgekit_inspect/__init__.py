"""What a judged artifact tells on closer look: in which module an error starts."""
