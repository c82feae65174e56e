"""The optimizer: the placement with the least cost by the data sheets, with a bound."""
