"""Predictions and outcomes over time  ->  how well each rule's gains hold."""
