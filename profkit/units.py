"""What a number is counted in: a signature says it where the name of a function does not."""

Seconds = float
Nanoseconds = int  # as they were recorded
Hertz = float
Watts = float
ByteCount = int
BytesPerSecond = float
Share = float  # 0 to 1
Factor = float  # 2: twice as fast
