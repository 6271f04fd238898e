/* For a compiler of the host, where no CUDA toolkit is installed. It checks nothing. */
#pragma once
