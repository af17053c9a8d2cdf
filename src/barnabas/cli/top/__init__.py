"""`barnabas top`: one screen of a cluster that is drawn again and again."""
