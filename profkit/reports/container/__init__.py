"""The bytes of a report  ->  its frames: what is whole, what is damaged, which launches it holds."""
