"""The browser bundle, and the browser that it is judged in."""
