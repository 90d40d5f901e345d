"""What is made of records when somebody asks: charts, reports, evidence, tensors, and the records of other tools."""
