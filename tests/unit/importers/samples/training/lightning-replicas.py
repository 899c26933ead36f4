trainer = Trainer(devices=8, num_nodes=2, precision="16-mixed", strategy="ddp")
loader = DataLoader(rows, batch_size=4)
