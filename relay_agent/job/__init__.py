"""What the code in the job stands on: the original standard library, descriptors, messages, how the job was started."""
