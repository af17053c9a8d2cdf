"""Speed, as ratios against peers in the same run. `make bench` prints the table; nothing here is asserted in tests."""
