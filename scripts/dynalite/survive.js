// Dynalite throws where a client goes away in the middle of a request, and would end with it.
process.on('uncaughtException', (error) => {
  console.error(error)
  if (error.code !== 'ECONNRESET') process.exit(1)
})
