"""The cars: their figures, tyres and descriptions, and the catalogue of them."""
