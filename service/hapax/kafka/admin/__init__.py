"""Administration: queries of commands and the doctor, and requests that the client lacks."""
